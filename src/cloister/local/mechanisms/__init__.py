"""Local mechanisms, one file each: public facts, the law of the reports, the device's and the collector's half."""
