"""Which errors exist, and what may the caller do next?

TrainmasterError
├── UserError                  the person who asked can mend it; shown as one sentence and a hint, exit code 2
│   ├── InvalidSpec            a field of a job file or a flag is wrong; names the field path
│   ├── InvalidSource          the source folder cannot be packed; names the file
│   ├── InvalidConfig          a setting is wrong; names the setting
│   ├── UnknownJob             no job has this name, or several do
│   └── Refused                understood, but never possible here; says what would fit
├── DatabaseError
│   ├── RevisionConflict       somebody else committed first: load again and decide again
│   ├── DatabaseUnavailable    no answer: it may have happened
│   └── NewerDatabase          written by a later release: install that one
├── StoreError
│   ├── StoreUnavailable       no answer: the write may have happened; try again later
│   ├── StoreFull              a clear no: there is no space; free some, then try again
│   └── StoreRejected          never: permission, credentials or address are wrong
└── ProviderError
    ├── NoCapacity             a clear no: nothing was allocated; try again later or elsewhere
    ├── ProviderRejected       never: retrying cannot help
    └── ProviderUnavailable    no answer: it may have happened
"""

from __future__ import annotations


class TrainmasterError(Exception):
    """Base of everything Trainmaster raises on purpose."""

    def __init__(self, sentence: str, *, hint: str = "") -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.hint = hint


class UserError(TrainmasterError):
    """The person who asked can mend it."""


class InvalidSpec(UserError):
    """A field of a job file or a flag is wrong."""

    def __init__(self, path: str, sentence: str, *, hint: str = "") -> None:
        super().__init__(f"{path}: {sentence}" if path else sentence, hint=hint)
        self.path = path


class InvalidSource(UserError):
    """The source folder cannot be packed."""


class InvalidConfig(UserError):
    """A setting is wrong."""


class UnknownJob(UserError):
    """No job has this name, or several do."""


class Refused(UserError):
    """Understood, but never possible here."""


class DatabaseError(TrainmasterError):
    """The database did not do what was asked."""


class RevisionConflict(DatabaseError):
    """Somebody else committed first: load again and decide again."""


class DatabaseUnavailable(DatabaseError):
    """No answer: it may have happened."""


class NewerDatabase(DatabaseError):
    """Written by a later release."""


class StoreError(TrainmasterError):
    """The object store did not do what was asked."""


class StoreUnavailable(StoreError):
    """No answer: the write may have happened."""


class StoreFull(StoreError):
    """A clear no: there is no space left."""


class StoreRejected(StoreError):
    """Never: permission, credentials or address are wrong."""


class ProviderError(TrainmasterError):
    """The provider did not do what was asked."""


class NoCapacity(ProviderError):
    """A clear no: nothing was allocated."""


class ProviderRejected(ProviderError):
    """Never: retrying cannot help."""


class ProviderUnavailable(ProviderError):
    """No answer: it may have happened."""
