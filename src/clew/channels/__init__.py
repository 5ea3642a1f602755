"""Chat channels: messages come in through webhooks, answers go out through the provider's API."""
