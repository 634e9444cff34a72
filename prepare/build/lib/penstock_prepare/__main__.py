import sys

from penstock_prepare.cli import main

sys.exit(main())
