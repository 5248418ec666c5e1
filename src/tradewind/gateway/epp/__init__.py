"""An Endpoint Picker for foreign gateways: ext_proc as the Gateway API Inference Extension uses it."""
