"""One evaluation task a file, with the readers of its sets; `headscan.training.task` says what a task is."""
