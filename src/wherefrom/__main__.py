"""`python -m wherefrom`, which is also how torchrun starts it: `torchrun ... -m wherefrom`."""

from wherefrom.cli import main

if __name__ == "__main__":
    main()
