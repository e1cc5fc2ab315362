"""The viewer of rollout dumps: ``sample`` reads them, ``app`` is the application."""
