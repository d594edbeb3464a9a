"""Files and batches as OpenAI's clients know them, for any model.

The pages belong to the ingress. A batch is run by a process of its own
(``python -m services.ingress.batches``), which one ingress starts and owns; what it
must not lose stands in the log.
"""
