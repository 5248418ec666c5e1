"""The tradewind command."""
