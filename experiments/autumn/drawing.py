"""Runs a program on a list of actions and draws what it showed."""

from __future__ import annotations

from experiments.autumn.options import GifOptions
from experiments.autumn.replaying import prepared
from jaxlab.envs.autumn.pictures import write_gif
from jaxlab.envs.autumn.replay import replay


def main(options: GifOptions) -> None:
    """Write the run that the options describe as an animated GIF.

    Raises:
      ConfigError, DataError, ProgramError: see the messages.
    """
    assert options.out is not None
    compiled, actions = prepared(options)
    result = replay(compiled, actions, options.seed)
    rate = options.frame_rate or compiled.frame_rate
    write_gif(
        options.out, result["frames"], result["palette"], scale=options.scale, frame_rate=rate
    )
    print(f"{options.out}: {len(result['frames'])} frames")
