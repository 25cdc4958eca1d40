"""The core: it knows keys, scopes, records and leases, and nothing of MCP or HTTP."""
