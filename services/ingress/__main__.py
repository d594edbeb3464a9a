"""Runs one ingress: ``python -m services.ingress --slot N``."""

from services.ingress.main import main

if __name__ == "__main__":
    main()
