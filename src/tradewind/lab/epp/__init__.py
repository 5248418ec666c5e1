"""A conformance kit for Endpoint Pickers: any ext_proc picker at an address, without Kubernetes."""
