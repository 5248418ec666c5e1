"""What holds for every test; read before any module of theirs."""

import os

# With gRPC's fork handlers on, a child of a process with open channels may die before its exec (grpc/grpc#43055).
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
