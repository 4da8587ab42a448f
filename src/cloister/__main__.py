"""Run the command line: `python -m cloister`."""

from cloister.cli import main

if __name__ == "__main__":
    main()
