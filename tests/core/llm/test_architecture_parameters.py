"""Parameters are exact for known models, and names are understood as people write them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlalloc.llm.architecture import architecture_of_config
from rlalloc.llm.known_models import KNOWN_MODELS, architecture_named, architecture_of_size

# What the models' publishers state on the Hugging Face hub, quoted.
PUBLISHED = {
    "meta-llama/Llama-2-7b-hf": 6_738_415_616,
    "meta-llama/Llama-2-13b-chat-hf": 13_015_864_320,
    "meta-llama/Llama-2-70b-hf": 68_976_648_192,
    "huggyllama/llama-65b": 65_285_660_672,
    "meta-llama/Meta-Llama-3-8B-Instruct": 8_030_261_248,
    "meta-llama/Llama-3.3-70B-Instruct": 70_553_706_496,
    "meta-llama/Llama-3.1-405B": 405_853_388_800,
    "meta-llama/Llama-3.2-1B": 1_235_814_400,
    "meta-llama/Llama-3.2-3B-Instruct": 3_212_749_824,
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": 1_100_048_384,
    "codellama/CodeLlama-34b-hf": 33_743_970_304,
    "mistralai/Mistral-7B-v0.1": 7_241_732_096,
    "mistralai/Mistral-Nemo-Base-2407": 12_247_782_400,
    "mistralai/Mixtral-8x7B-v0.1": 46_702_792_704,
    "mistralai/Mixtral-8x22B-v0.1": 140_620_634_112,
    "Qwen/Qwen-7B-Chat": 7_721_324_544,
    "Qwen/Qwen2.5-0.5B": 494_032_768,
    "Qwen/Qwen2-1.5B": 1_543_714_304,
    "Qwen/Qwen2.5-3B": 3_085_938_688,
    "Qwen/Qwen2.5-7B-Instruct": 7_615_616_512,
    "Qwen/Qwen2.5-14B": 14_770_033_664,
    "Qwen/Qwen2.5-32B-Instruct": 32_763_876_352,
    "Qwen/Qwen2-72B-Instruct": 72_706_203_648,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "Qwen/Qwen3-32B": 32_762_123_264,
    "Qwen/Qwen3-30B-A3B": 30_532_122_624,
    "Qwen/Qwen3-235B-A22B": 235_093_634_560,
    "google/gemma-2b": 2_506_172_416,
    "google/gemma-7b-it": 8_537_680_896,
    "google/gemma-2-9b-it": 9_241_705_984,
    "google/gemma-2-27b": 27_227_128_320,
    "google/gemma-3-1b-it": 999_885_952,
    "gpt2": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "EleutherAI/gpt-neo-1.3B": 1_315_575_808,
    "EleutherAI/gpt-j-6b": 6_050_882_784,
    "EleutherAI/gpt-neox-20b": 20_554_567_680,
    "EleutherAI/pythia-70m": 70_426_624,
    "EleutherAI/pythia-1.4b-deduped": 1_414_647_808,
    "EleutherAI/pythia-12b": 11_846_072_320,
    "facebook/opt-125m": 125_239_296,
    "facebook/opt-350m": 331_196_416,
    "facebook/opt-13b": 12_853_473_280,
    "bigscience/bloom-560m": 559_214_592,
    "bigscience/bloom-7b1": 7_069_016_064,
    "bigscience/bloom": 176_247_271_424,
    "tiiuae/falcon-7b": 6_921_720_704,
    "tiiuae/falcon-40b-instruct": 41_303_293_952,
    "microsoft/phi-1_5": 1_418_270_720,
    "microsoft/phi-2": 2_779_683_840,
    "microsoft/Phi-3-mini-4k-instruct": 3_821_079_552,
    "microsoft/phi-4": 14_659_507_200,
    "mosaicml/mpt-7b": 6_649_286_656,
    "bigcode/starcoder2-3b": 3_030_371_328,
    "bigcode/starcoder2-15b": 15_957_889_024,
    "CohereForAI/c4ai-command-r-v01": 34_980_831_232,
    "01-ai/Yi-34B": 34_388_917_248,
    "deepseek-ai/DeepSeek-V2-Lite": 15_706_484_224,
    "deepseek-ai/DeepSeek-V2": 235_741_434_880,
    "deepseek-ai/DeepSeek-V3": 671_026_419_200,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_exact(name: str) -> None:
    found = architecture_named(name)
    assert found is not None
    assert found.exact
    assert found.parameters == PUBLISHED[name]


@pytest.mark.parametrize(
    ("name", "same_as"),
    [
        ("/models/Qwen2.5-72B-Instruct-AWQ/", "Qwen/Qwen2.5-72B"),
        ("llama2/70B", "llama-2-70b"),
        ("llama3_1-8B", "llama-3-8b"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "qwen2.5-32b"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-v3"),
        ("/scratch/me/checkpoints/meta-llama/Llama-2-13b-hf", "llama-2-13b"),
        ("lmsys/vicuna-7b-v1.5", "llama-7b"),
    ],
)
def test_names_as_people_write_them(name: str, same_as: str) -> None:
    assert architecture_named(name) == architecture_named(same_as) != None  # noqa: E711


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("my-13b-run", 13),
        ("acme/Super_1.3B", 1.3),
        ("run-350m", 0.35),
        ("acme-8x7b", 45.9),
        ("org/bloomish-bloom-3.5b", 3.5),
    ],
)
def test_a_size_in_an_unknown_name(name: str, billions: float) -> None:
    found = architecture_named(name)
    assert found is not None
    assert not found.exact
    assert found.parameters == pytest.approx(billions * 1e9, rel=0.01)


@pytest.mark.parametrize("name", ["", "model", "/", "checkpoint-1000", "data-2024", "0b", "x1000000b"])
def test_a_name_that_tells_nothing(name: str) -> None:
    assert architecture_named(name) is None


def test_every_known_name_is_found_by_itself() -> None:
    assert all(architecture_named(name) is not None for name in KNOWN_MODELS)


LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}


def test_a_configuration_is_counted_as_the_model_of_that_name() -> None:
    assert architecture_of_config(LLAMA) == architecture_named("llama-3-8b")


def test_gpt_neos_number_of_heads_is_read() -> None:
    neo = {"model_type": "gpt_neo", "num_layers": 24, "hidden_size": 2048, "num_heads": 16, "vocab_size": 50257}
    found = architecture_of_config(neo)
    assert found is not None
    assert found.heads == 16


@pytest.mark.parametrize(
    ("parameters", "config"),
    [
        (
            21_825_437_888,  # Ernie 4.5 21B A3B, as transformers counts it
            {
                "model_type": "ernie4_5_moe", "num_hidden_layers": 28, "hidden_size": 2560,
                "num_attention_heads": 20, "num_key_value_heads": 4, "intermediate_size": 12288, "vocab_size": 103424,
                "moe_num_experts": 64, "moe_k": 6, "moe_intermediate_size": 1536, "moe_num_shared_experts": 2,
                "moe_layer_start_index": 1, "tie_word_embeddings": True,
            },
        ),
        (
            4_619_184_640,  # AFM 4.5B: two matrices in an MLP
            {
                "model_type": "arcee", "num_hidden_layers": 36, "hidden_size": 2560, "num_attention_heads": 20,
                "num_key_value_heads": 4, "intermediate_size": 18432, "vocab_size": 128004, "head_dim": 128,
                "tie_word_embeddings": False,
            },
        ),
    ],
    ids=["ernie", "afm"],
)  # fmt: skip
def test_models_that_were_measured_have_their_parameters(parameters: int, config: dict[str, Any]) -> None:
    found = architecture_of_config(config)
    assert found is not None
    assert found.parameters == parameters


@pytest.mark.parametrize(("rate", "dropout"), [(None, True), (0, False), ("0.0", False), (0.1, True), ("1e-1", True)])
def test_dropout_is_read(rate: Any, dropout: bool) -> None:
    """GPT-2 has dropout unless its configuration says that the rate is 0; files tell numbers as texts."""
    found = architecture_of_config({**LLAMA, "model_type": "gpt2", "resid_pdrop": rate})
    assert found is not None
    assert found.family.dropout == dropout


def test_a_multi_modal_configuration_tells_its_text_model() -> None:
    found = architecture_of_config({"model_type": "some_vlm", "text_config": LLAMA})
    assert found == architecture_of_config(LLAMA)


def test_an_unknown_family_is_not_exact() -> None:
    found = architecture_of_config({**LLAMA, "model_type": "brand_new"})
    assert found is not None
    assert not found.exact


@pytest.mark.parametrize("key", ["num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size"])
@pytest.mark.parametrize("value", [None, 0, -1, True, "many", 10**12, 1.5, []])
def test_a_configuration_without_a_dimension_is_none(key: str, value: Any) -> None:
    assert architecture_of_config({**LLAMA, key: value}) is None


def test_active_parameters_of_a_mixture() -> None:
    """DeepSeek-V3's report: 671 billion parameters, 37 billion active for each token; Mixtral's paper: 13 billion."""
    for name, active in (("deepseek-v3", 37e9), ("mixtral-8x7b", 12.9e9), ("qwen3-235b-a22b", 22e9)):
        found = architecture_named(name)
        assert found is not None
        assert found.active_parameters == pytest.approx(active, rel=0.03)


@given(st.integers(min_value=1_000_000, max_value=10**13))
def test_any_size_has_a_shape(parameters: int) -> None:
    found = architecture_of_size(parameters)
    assert found.parameters == parameters
    assert found.linear_parameters >= 0


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*LLAMA, "text_config", "kv_lora_rank", "num_experts", "head_dim"]), inner, max_size=8
        )
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from([*LLAMA, "text_config", "num_experts", "first_k_dense_replace"]), _JSON))
def test_no_configuration_raises(config: dict[str, Any]) -> None:
    assert json.dumps(config)
    found = architecture_of_config(config)
    if found is not None:
        assert found.parameters > 0
        assert found.active_parameters > 0


@given(st.text(max_size=400))
def test_no_name_raises(name: str) -> None:
    found = architecture_named(name)
    assert found is None or found.parameters > 0
