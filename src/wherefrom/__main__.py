"""`python -m wherefrom`, which is also how torchrun starts it.

torchrun --nproc-per-node 2 -m wherefrom study ...
"""

from wherefrom.cli import main

if __name__ == "__main__":
    main()
