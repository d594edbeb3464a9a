"""``python -m services.gpu_worker --slot N``."""

from services.gpu_worker.main import main

if __name__ == "__main__":
    main()
