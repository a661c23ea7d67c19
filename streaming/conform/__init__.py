"""`tidestaff conform`: facts recorded from Kafka, run through our rules."""
