# pyarrow makes its kernels when it is loaded, where no type checker sees them.
from typing import Any

def __getattr__(name: str) -> Any: ...
