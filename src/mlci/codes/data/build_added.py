"""Write added.csv, the year in which each later ICD-10-CM code was added: `python build_added.py icd10cm.csv`.

The input is the table of US modifications in pycomorb, made from CMS's conversion tables: a column per year, with UNDEF
before a code was added. Codes that were added between two editions, which those tables lack, are added by hand.
"""

import csv
import sys
from pathlib import Path

BETWEEN = {"U070": 2020, "U071": 2020} | dict.fromkeys(("J1282", "M3581", "M3589", "Z1152", "Z20822", "Z8616"), 2021)
years: dict[int, set[str]] = {}
with open(sys.argv[1], newline="", encoding="utf-8") as file:
    for row in csv.DictReader(file):
        year = min(int(year) for year, code in row.items() if not code.startswith("UNDEF"))
        years.setdefault(year, set()).update({row[max(row)].strip()} - {*BETWEEN})
for code, year in BETWEEN.items():
    years[year].add(code)
with Path(__file__).with_name("added.csv").open("w", newline="", encoding="utf-8") as file:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["year", "codes"])
    writer.writerows([year, " ".join(sorted(codes))] for year, codes in sorted(years.items()))
