"""Recurrent cores: gradients, resets, and one step at a time against the whole sequence."""

from typing import get_args

import pytest
import torch
from torch import Tensor

from quantail.errors import ConfigError
from quantail.nets.cores import CoreConfig, GruConfig, LruConfig, LstmConfig, NoCoreConfig
from quantail.nets.cores.gru import GruWeights, gru_layer, gru_layer_plain
from quantail.nets.cores.lru import lru_scan, lru_scan_plain
from quantail.nets.cores.lstm_layer import LstmWeights, lstm_layer, lstm_layer_plain
from tests.catalogue import catalogue

LENGTH, ROWS, INPUTS, UNITS = 6, 3, 4, 5
CORES = [member() for member in get_args(get_args(CoreConfig)[0])]
WITH_MEMORY = [core for core in CORES if core.kind != "none"]


def starts_inside(length: int = LENGTH, rows: int = ROWS) -> Tensor:
    starts = torch.rand(length, rows, generator=torch.Generator().manual_seed(5)) < 0.25
    starts[0] = torch.arange(rows) % 2 == 0
    starts[length // 2, 1] = True
    return starts


def test_the_union_holds_four_kinds():
    assert {core.kind for core in CORES} == {"lstm", "gru", "lru", "none"}


def lstm_case(dtype: torch.dtype) -> tuple[tuple[Tensor, ...], LstmWeights]:
    torch.manual_seed(1)
    state = [torch.randn(ROWS, UNITS, dtype=dtype) for _ in range(2)]
    x = torch.randn(LENGTH, ROWS, INPUTS, dtype=dtype)
    keep = (~starts_inside()).to(dtype)
    shapes = (INPUTS, 4 * UNITS), (UNITS, 4 * UNITS), (4 * UNITS,)
    return (x, *state, keep), LstmWeights(*(torch.randn(*s, dtype=dtype) for s in shapes))


def gru_case(dtype: torch.dtype) -> tuple[tuple[Tensor, ...], GruWeights]:
    torch.manual_seed(2)
    x, hidden = (
        torch.randn(LENGTH, ROWS, INPUTS, dtype=dtype),
        torch.randn(ROWS, UNITS, dtype=dtype),
    )
    keep = (~starts_inside()).to(dtype)
    shapes = (INPUTS, 3 * UNITS), (UNITS, 3 * UNITS), (3 * UNITS,), (3 * UNITS,)
    return (x, hidden, keep), GruWeights(*(torch.randn(*s, dtype=dtype) for s in shapes))


def lru_case(dtype: torch.dtype) -> tuple[Tensor, ...]:
    torch.manual_seed(3)
    inputs = torch.randn(LENGTH, ROWS, 2 * UNITS, dtype=dtype)
    angle = torch.rand(UNITS, dtype=dtype)
    decay = 0.9 * torch.cat([angle.cos(), angle.sin()])
    return inputs, (~starts_inside()).to(dtype), decay, torch.randn(ROWS, 2 * UNITS, dtype=dtype)


def test_gradients_of_the_lstm_layer_match_finite_differences():
    case, weights = lstm_case(torch.float64)
    tensors = [part.requires_grad_() for i, part in enumerate((*case, *weights)) if i != 3]

    def run(x, hidden, cell, *parameters):
        return lstm_layer(x, hidden, cell, case[3], LstmWeights(*parameters))

    assert torch.autograd.gradcheck(run, tensors)


def test_gradients_of_the_gru_layer_match_finite_differences():
    case, weights = gru_case(torch.float64)
    tensors = [part.requires_grad_() for i, part in enumerate((*case, *weights)) if i != 2]

    def run(x, hidden, *parameters):
        return gru_layer(x, hidden, case[2], GruWeights(*parameters))

    assert torch.autograd.gradcheck(run, tensors)


def test_gradients_of_the_lru_scan_match_finite_differences():
    inputs, keep, decay, state = lru_case(torch.float64)
    tensors = [part.requires_grad_() for part in (inputs, decay, state)]
    assert torch.autograd.gradcheck(lambda u, d, s: lru_scan(u, keep, d, s), tensors)


def test_float32_kernels_agree_with_plain_torch():
    case, weights = lstm_case(torch.float32)
    for own, plain in zip(
        lstm_layer(*case, weights), lstm_layer_plain(*case, weights), strict=True
    ):
        torch.testing.assert_close(own, plain, rtol=0, atol=2e-6)
    case, weights = gru_case(torch.float32)
    torch.testing.assert_close(
        gru_layer(*case, weights), gru_layer_plain(*case, weights), rtol=0, atol=2e-6
    )
    case = lru_case(torch.float32)
    torch.testing.assert_close(lru_scan(*case), lru_scan_plain(*case), rtol=0, atol=2e-6)


def test_the_lstm_without_resets_is_torchs_lstm():
    torch.manual_seed(4)
    reference = torch.nn.LSTM(INPUTS, UNITS)
    weights = LstmWeights(
        reference.weight_ih_l0.t(),
        reference.weight_hh_l0.t(),
        reference.bias_ih_l0 + reference.bias_hh_l0,
    )
    x = torch.randn(50, ROWS, INPUTS)
    zeros = torch.zeros(ROWS, UNITS)
    own, cell = lstm_layer(x, zeros, zeros, torch.ones(50, ROWS), weights)
    expected, (_, expected_cell) = reference(x)
    torch.testing.assert_close(own, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(cell, expected_cell[0], rtol=0, atol=1e-6)


def test_the_gru_without_resets_is_torchs_gru():
    torch.manual_seed(4)
    reference = torch.nn.GRU(INPUTS, UNITS)
    weights = GruWeights(
        reference.weight_ih_l0.t(),
        reference.weight_hh_l0.t(),
        reference.bias_ih_l0,
        reference.bias_hh_l0,
    )
    x = torch.randn(50, ROWS, INPUTS)
    own = gru_layer(x, torch.zeros(ROWS, UNITS), torch.ones(50, ROWS), weights)
    torch.testing.assert_close(own, reference(x)[0], rtol=0, atol=1e-6)


def test_compiled_tanh_is_right_and_lets_nan_through():
    # One unit whose output gate is open: h = tanh(tanh(g)) with i = o = 1 in float32.
    g = torch.linspace(-12, 12, 4001)
    open_gate = torch.full_like(g, 40.0)
    gates = torch.stack([open_gate, -open_gate, g, open_gate], dim=1)
    weights = LstmWeights(torch.eye(4), torch.zeros(1, 4), torch.zeros(4))
    zeros = torch.zeros(len(g), 1)
    out, _ = lstm_layer(gates.unsqueeze(0), zeros, zeros, torch.ones(1, len(g)), weights)
    torch.testing.assert_close(out[0, :, 0], g.tanh().tanh(), rtol=0, atol=6e-7)
    gates[7, 2] = torch.nan
    out, _ = lstm_layer(gates.unsqueeze(0), zeros, zeros, torch.ones(1, len(g)), weights)
    assert torch.isnan(out[0, :, 0]).nonzero().tolist() == [[7]]


@pytest.mark.parametrize("config", CORES, ids=lambda config: config.kind)
def test_one_step_at_a_time_equals_the_whole_sequence(config):
    torch.manual_seed(0)
    core = config.build(INPUTS)
    length, rows = 40, 5
    x, starts = torch.randn(length, rows, INPUTS), starts_inside(length, rows)
    state = tuple(torch.randn_like(part) for part in core.initial_state(rows))
    whole, last = core(x, state, starts)
    with torch.no_grad():
        for t in range(length):
            y, state = core(x[t : t + 1], state, starts[t : t + 1])
            torch.testing.assert_close(y[0], whole[t], rtol=0, atol=1e-6)
    for one, other in zip(state, last, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


@catalogue("F45")
@pytest.mark.parametrize("config", WITH_MEMORY, ids=lambda config: config.kind)
def test_a_start_resets_only_its_environment(config):
    torch.manual_seed(0)
    core = config.build(INPUTS)
    x = torch.randn(1, 3, INPUTS)
    state = tuple(torch.randn_like(part) for part in core.initial_state(3))
    starts = torch.tensor([[False, True, False]])
    y, after = core(x, state, starts)
    kept, kept_after = core(x, state, torch.zeros_like(starts))
    fresh, fresh_after = core(x, core.initial_state(3), torch.zeros_like(starts))
    for env, (expected, expected_state) in enumerate(
        [(kept, kept_after), (fresh, fresh_after), (kept, kept_after)]
    ):
        torch.testing.assert_close(y[0, env], expected[0, env])
        for part, expected_part in zip(after, expected_state, strict=True):
            torch.testing.assert_close(part[:, env], expected_part[:, env])
    assert (kept[0, 1] - fresh[0, 1]).abs().max() > 1e-3


@pytest.mark.parametrize("config", WITH_MEMORY, ids=lambda config: config.kind)
def test_nothing_before_a_start_matters(config):
    torch.manual_seed(0)
    core = config.build(INPUTS)
    x = torch.randn(8, 2, INPUTS, requires_grad=True)
    starts = torch.zeros(8, 2, dtype=torch.bool)
    starts[5, 0] = True
    y, _ = core(x, core.initial_state(2), starts)
    (gradient,) = torch.autograd.grad(y[5:].square().sum(), x)
    assert gradient[:5, 0].abs().max() == 0
    assert gradient[:5, 1].abs().max() > 0
    assert gradient[5:].abs().min(dim=0).values.max() > 0


@pytest.mark.parametrize("config", WITH_MEMORY, ids=lambda config: config.kind)
def test_every_parameter_gets_a_gradient(config):
    torch.manual_seed(0)
    core = config.build(INPUTS)
    y, state = core(torch.randn(5, 3, INPUTS), core.initial_state(3), starts_inside(5, 3))
    (y.square().mean() + sum(part.square().mean() for part in state)).backward()
    for name, parameter in core.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("config", [LstmConfig(layers=2), GruConfig(layers=3), LruConfig(blocks=3)])
def test_states_have_one_slice_per_layer(config):
    core = config.build(INPUTS)
    depth = getattr(config, "layers", None) or config.blocks
    for part in core(torch.randn(4, 2, INPUTS), core.initial_state(2), starts_inside(4, 2))[1]:
        assert part.shape[:2] == (depth, 2)
    assert core.output_size == config.hidden_size


def test_forget_gates_start_open():
    core = LstmConfig(hidden_size=3).build(2)
    assert core.layers[0].bias.tolist() == [0] * 3 + [1] * 3 + [0] * 6


def test_lru_radii_start_inside_their_ring():
    torch.manual_seed(0)
    block = LruConfig(hidden_size=500, fastest=0.8, slowest=0.95).build(2).blocks[0]
    radius = torch.exp(-block.nu.exp())
    assert radius.min() >= 0.8 - 1e-6
    assert radius.max() <= 0.95 + 1e-6
    assert radius.min() < 0.82
    torch.testing.assert_close(block.log_gain.exp(), (1 - radius**2).sqrt(), rtol=1e-4, atol=1e-5)


def test_an_empty_ring_is_refused():
    with pytest.raises(ConfigError, match=r"core\.fastest must be less than core\.slowest"):
        LruConfig(fastest=0.99, slowest=0.9)


def test_no_core_hands_its_input_on():
    core = NoCoreConfig().build(4)
    x = torch.randn(2, 3, 4)
    y, state = core(x, core.initial_state(3), torch.zeros(2, 3, dtype=torch.bool))
    assert y is x
    assert state == ()


@pytest.mark.parametrize("config", CORES, ids=lambda config: config.kind)
def test_cores_can_be_exported(config):
    torch.manual_seed(0)
    core = config.build(INPUTS).eval()
    inputs = torch.randn(1, 2, INPUTS), core.initial_state(2), torch.tensor([[True, False]])
    exported = torch.export.export(core, inputs).module()
    torch.testing.assert_close(exported(*inputs)[0], core(*inputs)[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("config", WITH_MEMORY, ids=lambda config: config.kind)
def test_the_layout_of_starts_in_memory_does_not_matter(config):
    torch.manual_seed(0)
    core = config.build(INPUTS)
    x, starts = torch.randn(LENGTH, ROWS, INPUTS), starts_inside()
    transposed = starts.t().contiguous().t()
    assert not transposed.is_contiguous()
    state = core.initial_state(ROWS)
    assert torch.equal(core(x, state, starts)[0], core(x, state, transposed)[0])


def recall_accuracy(
    config: CoreConfig, delay: int, updates: int, length: int, rate: float
) -> float:
    """Accuracy in the last updates of naming the symbol shown ``delay`` steps ago, of four."""
    torch.manual_seed(0)
    rows = 32
    core = config.build(4)
    out = torch.nn.Linear(core.output_size, 4)
    optimizer = torch.optim.Adam([*core.parameters(), *out.parameters()], lr=rate)
    starts = torch.zeros(length, rows, dtype=torch.bool)
    starts[0] = True
    hits = []
    for _ in range(updates):
        symbols = torch.randint(4, (length, rows))
        x = torch.nn.functional.one_hot(symbols, 4).float()
        y, _ = core(x, core.initial_state(rows), starts)
        scores, truth = out(y)[delay:].flatten(0, 1), symbols[:-delay].flatten()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(scores, truth).backward()
        optimizer.step()
        hits.append((scores.argmax(-1) == truth).float().mean().item())
    return sum(hits[-10:]) / 10


@pytest.mark.verify
def test_the_lru_recalls_what_it_saw_16_steps_ago():
    assert recall_accuracy(LruConfig(), 16, 800, length=64, rate=2e-3) >= 0.99


@pytest.mark.parametrize("config", WITH_MEMORY, ids=lambda config: config.kind)
def test_cores_learn_to_recall_the_symbol_before(config):
    assert recall_accuracy(config, 1, 60, length=12, rate=1e-2) >= 0.95
    assert recall_accuracy(NoCoreConfig(), 1, 60, length=12, rate=1e-2) <= 0.35
