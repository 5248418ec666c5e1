"""Names of the gRPC methods; both ends use generic handlers, so no generated service code is needed."""

SERVICE = "tradewind.v1.Grid"
HEARTBEATS = f"/{SERVICE}/Heartbeats"
VIEWS = f"/{SERVICE}/Views"
