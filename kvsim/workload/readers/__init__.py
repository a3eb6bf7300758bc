"""The trace formats. A new one is one file with a :class:`Reader` and one line here."""

from kvsim.workload.readers.agentic import Agentic
from kvsim.workload.readers.azure import Azure
from kvsim.workload.readers.bailian import Bailian
from kvsim.workload.readers.burstgpt import BurstGpt
from kvsim.workload.readers.kvsim_jsonl import KvsimJsonl
from kvsim.workload.readers.lengths import Lengths
from kvsim.workload.readers.mooncake import Mooncake
from kvsim.workload.readers.parquet import Parquet
from kvsim.workload.readers.reader import Reader
from kvsim.workload.readers.sharegpt import ShareGpt
from kvsim.workload.readers.timed_trace import TimedTrace
from kvsim.workload.readers.vllm_custom import VllmCustom

READERS: dict[str, type[Reader]] = {
    "kvsim": KvsimJsonl,
    "mooncake": Mooncake,
    "timed-trace": TimedTrace,
    "bailian": Bailian,
    "azure": Azure,
    "burstgpt": BurstGpt,
    "sharegpt": ShareGpt,
    "lengths": Lengths,
    "vllm-custom": VllmCustom,
    "agentic": Agentic,
    "parquet": Parquet,
}
