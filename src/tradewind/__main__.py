"""`python -m tradewind` is the `tradewind` script."""

from tradewind.cli.main import main

if __name__ == "__main__":
    main()
