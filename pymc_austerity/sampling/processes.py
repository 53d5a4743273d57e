"""Chains in processes of their own, which send their draws some at a time."""

import os
import pickle
import signal
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Any, Self, cast

import cloudpickle
from threadpoolctl import threadpool_limits

from pymc_austerity.sampling.chains import Block, Chains, blocks_of

_LOOK = 0.2  # seconds between two looks at an interrupt
# What codes of processes mean: the last is that of Python where it has not come as far as the chain.
_KILLED = "; the system does that where memory is short. Use fewer cores"
_WHY = {-9: _KILLED, 137: _KILLED} | {
    1: ", and has said why. If that is a RuntimeError: where processes are not forked, each runs your script "
    'again, and what starts chains has to stand below if __name__ == "__main__". Or use cores=1'
}


class ChainError(RuntimeError):
    """The process of a chain has ended before the chain, or by an error that cannot be sent."""


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
    with _Interrupts() as interrupts:
        is_told = False
        try:
            while left or running:
                if interrupts.is_asked and not is_told:
                    is_told, left = True, []
                    for _, process in running.values():
                        if process.is_alive():
                            os.kill(process.pid, signal.SIGINT)
                while left and len(running) < cores:
                    _start(left.pop(0), content, context, blas_cores, running)
                for connection in wait(list(running), _LOOK):
                    _receive(cast(Connection, connection), running, see, is_interrupted=interrupts.is_asked)
        finally:
            for connection, (_, process) in running.items():
                connection.close()
                process.terminate()
                process.join()
    if is_told or interrupts.is_asked:
        raise KeyboardInterrupt


class _Interrupts:
    """Ctrl-C, in whose place this is asked: no message is broken off, and no block of draws is lost.

    A second one raises at once.
    """

    def __init__(self) -> None:
        self.is_asked = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before: Any = signal.signal(signal.SIGINT, self._ask)
        return self

    def _ask(self, *given: Any) -> None:
        if self.is_asked:
            raise KeyboardInterrupt
        self.is_asked = True

    def __exit__(self, *error: object) -> None:
        if hasattr(self, "_before"):
            signal.signal(signal.SIGINT, self._before)


def _start(
    chain: int, content: Any, context: Any, blas_cores: int | None, running: dict[Connection, tuple[int, Any]]
) -> None:
    here, there = context.Pipe(duplex=False)
    is_fork = context.get_start_method() == "fork"
    # Ends that a fork inherits: while it holds them it would not notice that this process is gone.
    inherited = [here, *running] if is_fork else []
    arguments = there, content, chain, None if is_fork else blas_cores, inherited
    process = context.Process(target=_run, args=arguments, name=f"chain_{chain}", daemon=True)
    mask = getattr(signal, "pthread_sigmask", None)  # Windows has none
    before = mask and mask(signal.SIG_BLOCK, [signal.SIGINT])  # until the process can take it
    try:
        process.start()
    finally:
        if mask:
            mask(signal.SIG_SETMASK, before)
    there.close()
    running[here] = chain, process


def _receive(
    connection: Connection,
    running: dict[Connection, tuple[int, Any]],
    see: Callable[[int, Block], None],
    *,
    is_interrupted: bool,
) -> None:
    """Take what a chain sends: draws, warnings when it ends, or an error."""
    chain, process = running[connection]
    try:
        sent = connection.recv()
    except EOFError:
        del running[connection]
        process.join()
        if process.exitcode and not is_interrupted:
            code, why = process.exitcode, _WHY.get(process.exitcode, "")
            raise ChainError(f"The process of chain {chain} ended with code {code}{why}.") from None
        return
    if isinstance(sent, Block):
        see(chain, sent)
    elif isinstance(sent, list):
        for category, text in dict.fromkeys(sent):
            warnings.warn(text, category, stacklevel=2)
    else:
        error, told = sent
        error.add_note(f"In the process of chain {chain}:\n{told}")
        raise error


def _run(
    connection: Connection, content: Any, chain: int, blas_cores: int | None, inherited: list[Connection]
) -> None:
    """Run one chain in this process; Ctrl-C ends it between two messages."""
    for one in inherited:
        one.close()
    interrupts, told = _OfChain(), []
    try:
        chains: Chains = pickle.loads(content) if isinstance(content, bytes) else content
        with warnings.catch_warnings(record=True) as told, threadpool_limits(limits=blas_cores):
            warnings.simplefilter("always")
            for block in blocks_of(chains, chain):
                with interrupts.later():
                    connection.send(block)
    except KeyboardInterrupt:
        pass
    except (Exception, SystemExit) as error:  # it is raised where the chain was started
        interrupts.are_over()
        connection.send((_sendable(error), traceback.format_exc()))
    interrupts.are_over()
    connection.send([_told(one) for one in told])
    connection.close()


class _OfChain:
    """Ctrl-C in the process of a chain: it counts once, and never breaks a message off."""

    def __init__(self) -> None:
        self._is_asked, self._has_to_wait = False, True
        signal.signal(signal.SIGINT, self._ask)
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        self._has_to_wait = False

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

    def are_over(self) -> None:
        """Take no more."""
        self._is_asked = True


def _told(one: Any) -> tuple[type[Warning], str]:
    """A warning as it can be sent: of a class that is known elsewhere."""
    try:
        pickle.dumps(one.category)
    except (pickle.PicklingError, AttributeError):
        return UserWarning, f"{one.category.__name__}: {one.message}"
    return one.category, str(one.message)


def _sendable(error: BaseException) -> BaseException:
    """The error, or one that says the same, if it cannot be pickled."""
    try:
        if isinstance(error, Exception):
            pickle.loads(pickle.dumps(error))
            return error
    except Exception:  # whatever its own methods raise
        pass
    return ChainError(f"{type(error).__name__}: {error}")
