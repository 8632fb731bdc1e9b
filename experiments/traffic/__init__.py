"""Traffic simulation: any CityFlow network and flow under any signal controller."""
