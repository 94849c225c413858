"""What this machine does with the configured models: measured side by side, never from memory."""
