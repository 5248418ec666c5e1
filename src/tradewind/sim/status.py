"""HTTP statuses of simulated engines and gateways."""

HTTP_OK = 200
HTTP_UNAVAILABLE = 503
