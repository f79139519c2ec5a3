"""The laboratory: the ledger of claims, the tournament of training methods, evaluation tasks,
theory that no verb uses.
"""
