from mlci.cli import main

main()
