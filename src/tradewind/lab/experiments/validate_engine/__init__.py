"""The engine model against three runs of real vLLM engines, request by request."""
