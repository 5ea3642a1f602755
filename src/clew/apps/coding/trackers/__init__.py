"""Issue trackers: GitHub, Jira, or the request itself."""
