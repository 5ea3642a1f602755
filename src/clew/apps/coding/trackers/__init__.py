"""Where issues come from: GitHub, Jira, or the request itself."""
