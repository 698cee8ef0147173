"""Errors of rlalloc.

RlallocError
├── ConfigError          the configuration file cannot be used
├── DirectiveError       a ``#RLALLOC`` line in a job script cannot be understood
├── MessageError         bytes on the wire are not one of our messages
├── StoreError           the experience store cannot be read or written
│   ├── LeaseLost        another rlallocd acts for the site: this one may not write any more
│   ├── StoreMissing     there is no store yet
│   └── StoreUnfit       this rlalloc cannot use the store, however often it tries
├── HistoryError         a log of ended jobs, or the key of its pseudonyms, cannot be used
├── PolicyError          a policy version is missing, damaged or unfit
├── ProfileError         a profile of speeds cannot be read, measured or written
└── PluginError          an installed plug-in cannot be used
"""


class RlallocError(Exception):
    """Base of every error that rlalloc raises on purpose; its text says what to do next."""


class ConfigError(RlallocError):
    """The configuration is wrong: which key, what was found, what is allowed."""


class DirectiveError(RlallocError):
    """A ``#RLALLOC`` directive is wrong: which key, what was found, what is allowed."""


class MessageError(RlallocError):
    """Bytes on the wire are not a message of this schema."""


class StoreError(RlallocError):
    """The experience store cannot be read or written."""


class LeaseLost(StoreError):
    """Another rlallocd acts for the site now; this one must neither write to the store nor change jobs."""


class StoreUnfit(StoreError):
    """This rlalloc cannot use the store, or store.url, however often it tries."""


class StoreMissing(StoreError):
    """There is no store yet, and this program only reads."""


class HistoryError(RlallocError):
    """A log of ended jobs cannot be read, or the key of pseudonyms not be used."""


class PolicyError(RlallocError):
    """A policy version is missing, damaged, or cannot be served by this version of rlalloc."""


class MissingInputsError(PolicyError):
    """A network reads features or heuristics' answers that are not there (any more)."""


class ProfileError(RlallocError):
    """A profile of speeds cannot be read or written, or its points cannot be measured."""


class PluginError(RlallocError):
    """An expert, reward or metric of another distribution is missing, cannot be imported or answers wrong."""
