"""Where the rows of observations come from: simulator, recording, Kafka, collectors."""
