"""Recurrent cores: the union is the register."""

from typing import Annotated, TypeAlias

from quantail.config_class import BY_KIND
from quantail.nets.cores.base import Core
from quantail.nets.cores.lstm import LstmConfig
from quantail.nets.cores.none import NoCoreConfig

CoreConfig: TypeAlias = Annotated[LstmConfig | NoCoreConfig, BY_KIND]

__all__ = ["Core", "CoreConfig", "LstmConfig", "NoCoreConfig"]
