"""An ingress on a real Kafka, with a stand-in for all that lies behind it."""
