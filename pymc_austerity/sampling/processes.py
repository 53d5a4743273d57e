"""Chains in processes of their own, which send their draws some at a time."""

import multiprocessing
import os
import pickle
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Any

import cloudpickle
from threadpoolctl import threadpool_limits

from pymc_austerity.sampling.chains import Block, Chains, blocks_of


class ChainError(RuntimeError):
    """A chain failed in its process; its cause is the error there."""


def run_in_processes(
    chains: Chains, cores: int, context: Any, blas_cores: int | None, see: Callable[[int, Block], None]
) -> None:
    """Run all chains, so many at once, and hand over their draws as they come.

    After Ctrl-C chains end, and what they have drawn is handed over before the interrupt is raised.
    """
    content: Any = chains
    if context.get_start_method() != "fork":
        content = cloudpickle.dumps(chains)
    left, running = list(range(len(chains.starts))), dict[Connection, tuple[int, Any]]()
    is_interrupted = False
    try:
        while left or running:
            try:
                while left and len(running) < cores:
                    _start(left.pop(0), content, context, blas_cores, running)
                for connection in wait(list(running)):
                    assert isinstance(connection, Connection)
                    _receive(connection, running, see)
            except KeyboardInterrupt:
                if is_interrupted:
                    raise
                is_interrupted, left = True, []
                for _, process in running.values():
                    if process.is_alive():
                        os.kill(process.pid, signal.SIGINT)
    finally:
        for connection, (_, process) in running.items():
            connection.close()
            process.terminate()
            process.join()
    if is_interrupted:
        raise KeyboardInterrupt


def _start(
    chain: int, content: Any, context: Any, blas_cores: int | None, running: dict[Connection, tuple[int, Any]]
) -> None:
    here, there = context.Pipe(duplex=False)
    arguments = there, content, chain, None if context.get_start_method() == "fork" else blas_cores
    process = context.Process(target=_run, args=arguments, name=f"chain_{chain}", daemon=True)
    process.start()
    there.close()
    running[here] = chain, process


def _receive(
    connection: Connection, running: dict[Connection, tuple[int, Any]], see: Callable[[int, Block], None]
) -> None:
    """Take what a chain sends: draws, warnings when it ends, or an error."""
    chain, process = running[connection]
    try:
        sent = connection.recv()
    except EOFError:
        del running[connection]
        process.join()
        if process.exitcode:
            raise ChainError(
                f"The process of chain {chain} ended with code {process.exitcode}; the system does that "
                "where memory is short. Use fewer cores."
            ) from None
        return
    if isinstance(sent, Block):
        see(chain, sent)
    elif isinstance(sent, list):
        for category, text in dict.fromkeys(sent):
            warnings.warn(f"Chain {chain}: {text}", category, stacklevel=2)
    else:
        error, told = sent
        error.add_note(f"In the process of chain {chain}:\n{told}")
        raise error


def _run(connection: Connection, content: Any, chain: int, blas_cores: int | None) -> None:
    """Run one chain in this process."""
    chains: Chains = pickle.loads(content) if isinstance(content, bytes) else content
    interrupts = _Interrupts()
    with warnings.catch_warnings(record=True) as told, threadpool_limits(limits=blas_cores):
        warnings.simplefilter("always")
        try:
            for block in blocks_of(chains, chain):
                with interrupts.later():
                    connection.send(block)
        except KeyboardInterrupt:
            pass
        except Exception as error:  # it is raised where the chain was started
            connection.send((_sendable(error), traceback.format_exc()))
    connection.send([(one.category, str(one.message)) for one in told])
    connection.close()


class _Interrupts:
    """Ctrl-C in this process: it counts once, and never breaks a message off."""

    def __init__(self) -> None:
        self._is_asked = self._has_to_wait = False
        signal.signal(signal.SIGINT, self._ask)

    def _ask(self, *given: Any) -> None:
        if not self._is_asked:
            self._is_asked = True
            if not self._has_to_wait:
                raise KeyboardInterrupt

    @contextmanager
    def later(self) -> Iterator[None]:
        """Raise an interrupt that comes meanwhile at the end."""
        self._has_to_wait = True
        yield
        self._has_to_wait = False
        if self._is_asked:
            raise KeyboardInterrupt


def _sendable(error: BaseException) -> BaseException:
    """The error, or one that says the same, if it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except (pickle.PicklingError, AttributeError, TypeError):
        return ChainError(f"{type(error).__name__}: {error}")
    return error


def start_method(context: Any) -> Any:
    """PyMC's choice of how processes start, or the user's."""
    return multiprocessing.get_context(context) if context is None or isinstance(context, str) else context
