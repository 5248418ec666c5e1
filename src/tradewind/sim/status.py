"""HTTP statuses of simulated engines and gateways."""

HTTP_OK = 200
HTTP_UNAVAILABLE = 503
HTTP_BAD_REQUEST = 400
HTTP_UNPROCESSABLE = 422  # the gate's, of a request that ended two engines
NO_ANSWER = 0
