"""Tradewind: a control plane that routes LLM inference across sites."""

__version__ = "0.1.0"
