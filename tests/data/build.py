"""Make what is not a plain copy: the reference vectors as Parquet, and every 50th record of NHDS 2010.

python tests/data/build.py SHARED   (the folder with data/ and vectors/)
"""

import bz2
import sys
from pathlib import Path

import pandas as pd
import pyarrow.compute as pc
import pyarrow.parquet as pq

HERE, STEP = Path(__file__).parent, 50


def main(shared: Path) -> None:
    for file in sorted((shared / "vectors").glob("*.csv")):
        frame = pd.read_csv(file, dtype={"code": str}, keep_default_na="expected" in file.name)
        frame.to_parquet(HERE / "vectors" / f"{file.stem}.parquet", index=False, compression="zstd")
    nhds = shared / "data" / "nhds2010"
    with bz2.open(nhds / "NHDS10.PU.txt.bz2") as file:
        lines = [line for number, line in enumerate(file) if number % STEP == 0]
    (HERE / "nhds2010" / "sample.txt.bz2").write_bytes(bz2.compress(b"".join(lines)))
    for name in ("tidy_admissions", "tidy_diagnoses"):
        table = pq.read_table(nhds / f"{name}.parquet")
        before = pc.subtract(table["adm_id"], 1)
        kept = pc.equal(pc.subtract(before, pc.multiply(pc.divide(before, STEP), STEP)), 0)
        number = pc.add(pc.divide(before.filter(kept), STEP), 1)
        table = table.filter(kept).set_column(0, "adm_id", number).replace_schema_metadata()
        pq.write_table(table, HERE / "nhds2010" / f"{name}.parquet", compression="zstd")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
