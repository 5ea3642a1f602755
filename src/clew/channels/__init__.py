"""Chats outside: messages in through webhooks, answers back through the provider's API."""
