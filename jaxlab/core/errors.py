"""The exceptions a user may see.

Each message names the thing at fault, what was expected and what to do. Command
lines print the message alone and exit with `exit_code`.
"""


class JaxlabError(Exception):
    """Base of every error that is the input's fault, not the library's."""

    exit_code = 2


class ConfigError(JaxlabError):
    """An option, flag or configuration value is wrong."""


class DeviceError(JaxlabError):
    """The devices that were asked for are not there."""


class DataError(JaxlabError):
    """A file is missing, unreadable or malformed."""


class ScenarioError(JaxlabError):
    """A scenario or a set of environment parameters is inconsistent."""


class ProgramError(JaxlabError):
    """A program of a language is malformed, cannot be compiled, or failed while it ran."""


class CapacityError(JaxlabError):
    """A simulation needed more room than its fixed-shape arrays have."""


class CheckpointError(JaxlabError):
    """A checkpoint is missing, damaged, or belongs to another configuration."""


class TokenizerError(JaxlabError):
    """A tokenizer is missing, unreadable, or lacks what is asked of it."""


class PromptError(JaxlabError):
    """A prompt cannot be given to a language model: empty, too long, or with unknown tokens."""


class DownloadError(JaxlabError):
    """A download failed, or is not the file that was expected."""


class EndpointError(JaxlabError):
    """A language model's endpoint cannot be reached, refuses, or does not answer as it should."""


class ConvergenceError(JaxlabError):
    """An iteration ended before it reached its tolerance."""


class PrecisionError(JaxlabError):
    """A function cannot meet its tolerance in the active floating-point precision."""


class Interrupted(SystemExit):
    """A signal stopped a run after it had saved; uncaught, the process exits with 0."""

    def __init__(self, message: str):
        super().__init__(0)
        self.message = message

    def __str__(self) -> str:
        return self.message
