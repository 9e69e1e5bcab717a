"""Recurrent cores: the union is the register."""

from typing import Annotated, TypeAlias

from quantail.config_class import BY_KIND
from quantail.nets.cores.base import Core
from quantail.nets.cores.gru import GruConfig
from quantail.nets.cores.lru import LruConfig
from quantail.nets.cores.lstm import LstmConfig
from quantail.nets.cores.none import NoCoreConfig

CoreConfig: TypeAlias = Annotated[LstmConfig | GruConfig | LruConfig | NoCoreConfig, BY_KIND]

__all__ = ["Core", "CoreConfig", "GruConfig", "LruConfig", "LstmConfig", "NoCoreConfig"]
