"""A stand-in for another program that `epmoe bench experts --peer` measures. First argument: what it does wrong, or
`fine`; second: a file for the questions it was asked."""
import json
import sys

mode, log = sys.argv[1:]
for line in sys.stdin:
    with open(log, "a", encoding="utf-8") as file:
        file.write(line)
    ask = json.loads(line)["ask"]
    answer = {"layer": {"name": "stand-in", "isa": "none", "expert_bytes": 1000.0}, "batch": {"checked": mode != "blind"},
              "run": {"seconds": 0.25}}[ask]
    if ask == "layer" and mode == "refuses":
        answer = {"refused": "no such format"}
    if ask == "batch" and mode == "wrong":
        answer = {"wrong": "relative error 0.5"}
    if ask == "run" and mode == "dies":
        sys.exit(7)
    if ask == "run" and mode == "frozen":
        answer = {"seconds": 0.0}
    print("nonsense" if mode == "babbles" else json.dumps(answer), flush=True)
