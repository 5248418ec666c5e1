"""The picker of one gateway: a question per request from Envoy, answered from memory."""
