"""How observations are obtained: ZooKeeper, broker protocol, log directories, KRaft, simulator."""
