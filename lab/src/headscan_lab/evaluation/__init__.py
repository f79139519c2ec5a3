"""Evaluation tasks, offline: what a trained model can do."""
