"""What training imports: schemas, tools, registry, sandbox client, limiter, execution pool, rollout, reward."""
