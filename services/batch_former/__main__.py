"""``python -m services.batch_former --slot N``."""

from services.batch_former.main import main

main()
