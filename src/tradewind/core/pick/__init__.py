"""Which cell serves a request: who may, what each would cost in seconds, and what is in flight because of it."""
